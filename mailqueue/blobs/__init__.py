"""The bytes of mails: stores of blobs behind one port, and how a mail's header and body lie in them."""
