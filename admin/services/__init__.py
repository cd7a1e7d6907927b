"""What a person can ask for, each as one function: a request goes in, a result comes out; no face is known here.

A request's field means what the option of its name says (docs/cli.md); None is what that option means left out.
"""
