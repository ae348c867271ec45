#pragma once

#include "kindling/base/export.h"
#include "kindling/data/image_data.h"

namespace kindling {

// 1,797 handwritten digits of 8 x 8 pixels, built into the library: float [batch, 1, 8, 8] in 0…1 (the values
// 0…16 divided by 16), labels 0…9. Split 80/20 by a fixed seed, stratified by digit.
//
// Source: the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998; UCI
// Machine Learning Repository), CC BY 4.0, as shipped with scikit-learn.
class KINDLING_API Digits : public ImageData {
 public:
  explicit Digits(DataOptions options = {});

 protected:
  Split load() override;
};

}  // namespace kindling
