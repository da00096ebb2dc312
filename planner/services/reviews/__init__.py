"""Reviews: submission, approval, rejection, waivers and comments."""
