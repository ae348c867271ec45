class M(Module):
  __parameters__ = ["w", ]
  __buffers__ = ["b", ]
