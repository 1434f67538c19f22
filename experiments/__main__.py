"""Run the command line: `python -m experiments`."""

from bayesnorm_command import end_with

if __name__ == "__main__":
    end_with("experiments.app")
