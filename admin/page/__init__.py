"""`mailmend serve`: a page to look at, rendered on the server. `pages.PAGES` lists its pages."""
