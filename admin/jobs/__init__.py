"""Jobs: commands that a settings file declares to run at times; declared, when, by whom."""
