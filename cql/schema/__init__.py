"""What a schema is and should be: differences, risks, rights, migrations, lint rules, advice. Pure."""
