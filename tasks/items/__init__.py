"""Tasks that embed items."""
