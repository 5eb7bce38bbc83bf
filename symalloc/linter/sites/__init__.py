"""Sites: the places where rules ask.  Each module registers what generates its sites (see `registry`)."""
