"""Files of projections: `mailmend projections`."""
