#include "data/loading/first_batch.h"

#include <ATen/ops/arange.h>

#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/tensors/move.h"

namespace kindling {

Batch first_raw_batch(DataModule& data) {
  std::shared_ptr<DataLoader> loader = data.predict_dataloader();
  if (!loader) loader = data.train_dataloader();
  if (!loader || loader->num_batches() == 0)
    throw DataError({.place = "data",
                     .found = loader ? "the data has no batch" : "the data has no data loader",
                     .wanted = "one batch, for the shapes of the inputs"});
  DataLoader::Cursor cursor(*loader);
  cursor.keep_order();
  cursor.seek(0);
  Batch batch;
  cursor.next(batch);
  return cursor.gives_views() ? copy_to(batch, cpu()) : batch;  // hooks may write to it
}

Batch with_samples(Batch batch, std::int64_t count) {
  const std::int64_t samples = batch.num_samples();
  for (at::Tensor& tensor : batch.tensors())
    if (tensor.dim() > 0 && tensor.size(0) == samples)
      tensor = tensor.index_select(
          0, at::arange(count, at::dtype(at::kLong).device(tensor.device())).remainder(samples));
  return batch;
}

}  // namespace kindling
