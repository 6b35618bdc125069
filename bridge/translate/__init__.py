"""What becomes what: values of one protocol in, values of the other out. Pure, and the heart of the bridge."""
