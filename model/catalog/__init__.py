"""Every table that mailmend knows: James's mail tables, the mail queue, and our own ledger."""
