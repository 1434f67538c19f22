"""`python -m bayesnorm`: the command line."""

from bayesnorm_command import main

if __name__ == "__main__":
    main()
