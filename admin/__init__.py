"""Where everything is wired together: the command, its settings, its reports, and the embedded servers."""
