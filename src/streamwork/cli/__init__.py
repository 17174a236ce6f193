"""The command line: parses arguments, calls `run` and `observe`, prints text or JSON."""
