"""Private selection and tuning."""
