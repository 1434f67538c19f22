"""Run the command line: `python -m bayesnorm`."""

from bayesnorm_command import main

if __name__ == "__main__":
    main()
