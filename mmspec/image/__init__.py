"""Pictures by few-step diffusion, in drafts that can be advanced, looked at, re-noised and finished."""
