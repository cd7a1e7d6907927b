"""`mailmend schema lint` behind its command: what is linted, how it is shown, SARIF, the page of the rules."""
