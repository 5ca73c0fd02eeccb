"""The verifier: what text and prompt claim, and whether pictures show it."""
