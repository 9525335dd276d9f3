"""Attribution: which token contributed how much to each step."""
