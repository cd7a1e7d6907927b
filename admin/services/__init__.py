"""What a person can ask for, each as one function: a request goes in, a result comes out; no face is known here."""
