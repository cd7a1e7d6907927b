"""The nouns and rules of mailmend: standard library only; no clock, no chance, no I/O."""
