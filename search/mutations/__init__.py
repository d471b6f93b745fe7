"""Small changes to programs: `mutation` says what one is, `defaults` which a search makes, and how often."""
