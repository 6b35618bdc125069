"""Push notifications that this bridge sends."""
