"""The entry point of the command `mailmend` and of `python -m mailmend`."""

from mailmend.admin.main import main

if __name__ == "__main__":
    main()
