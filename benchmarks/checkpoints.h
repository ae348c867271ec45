#pragma once

#include "protocol.h"

namespace kindling_bench {

// A state of 401 MB, saved to and loaded from a file in options.folder: by Kindling, or plainly, as the same
// bytes (options.peer).
void ckpt_save(const Options& options);
void ckpt_load(const Options& options);

// step_deep with something done after every step (options.variant): nothing (without), the snapshot of a
// save, the wait for a disk, both (wait_snapshot), or an asynchronous save.
void ckpt_step(const Options& options);

}  // namespace kindling_bench
