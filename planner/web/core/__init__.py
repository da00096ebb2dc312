"""What all pages share: middleware, form base, view helpers, uploads."""
