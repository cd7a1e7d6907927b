"""`python -m admin.cli`: the command where nothing is installed, for example in a checkout or inside a zip."""

from admin.cli import main

main()
