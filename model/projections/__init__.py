"""How denormalised tables follow from the source of truth."""
