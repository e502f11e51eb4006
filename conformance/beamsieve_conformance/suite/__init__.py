"""The tests, each named for the rule that it proves; a module is about one group of rules."""
