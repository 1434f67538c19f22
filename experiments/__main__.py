"""`python -m experiments`: the command line."""

from bayesnorm_command import end_with

if __name__ == "__main__":
    end_with("experiments.app")
