"""The command line: one file a command; parses, calls the api, prints."""
