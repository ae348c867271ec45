#include "sample_sheet.h"

#include <ATen/ATen.h>
#include <kindling/base/error.h>
#include <kindling/nn/evaluation_guard.h>

#include <fstream>

#include "digits_gan.h"

void SampleSheet::on_fit_end(kindling::Trainer&, kindling::Module& model, const kindling::FitResult&) {
  auto* const gan = dynamic_cast<DigitsGan*>(&model);
  if (gan == nullptr)
    throw kindling::ConfigError({.place = "[callbacks.sample_sheet]",
                                 .found = "the model does not generate digits",
                                 .wanted = "digits_gan"});
  const kindling::EvaluationGuard evaluation(model);
  // [10, 10, 8, 8] → rows of pixels of the sheet.
  const at::Tensor images = gan->generate(100).view({10, 10, 8, 8}).permute({0, 2, 1, 3}).reshape({80, 80});
  const at::Tensor pixels = (images * 255).round().to(at::kByte).cpu().contiguous();
  std::ofstream out(options_.file, std::ios::binary);
  out << "P5\n80 80\n255\n";
  out.write(static_cast<const char*>(pixels.const_data_ptr()), pixels.numel());
  if (!out.flush())
    throw kindling::Error({.place = options_.file.string(), .found = "cannot write the image"});
}
