"""What any command needs: declaration, options, settings, caller, document, presenter."""
