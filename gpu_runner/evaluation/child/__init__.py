"""What runs in sandboxed children: may import torch and triton; nothing outside imports it."""
