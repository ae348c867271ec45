#pragma once

#include "kindling/data/image_data.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Throws DataError for a standard deviation that is not positive.
void check_image_scale(const ImageScale& scale);

// Turns the bytes of {uint8 images, labels} into numbers, on their device, and labels, if any, into int64.
Batch scaled_images(Batch batch, const ImageScale& scale);

}  // namespace kindling
