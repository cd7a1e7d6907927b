"""Mails that are not due yet: where they are kept, who moves them, and how."""
