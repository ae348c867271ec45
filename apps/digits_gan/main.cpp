#include <kindling/cli/program.h>

#include "digits_gan.h"
#include "sample_sheet.h"

int main(int argc, char** argv) {
  kindling::Registry registry;
  kindling::register_builtin(registry);
  registry.model<DigitsGan, DigitsGanOptions>("digits_gan", "makes handwritten digits of 8 x 8 pixels");
  registry.callback<SampleSheet, SampleSheetOptions>("sample_sheet", "a picture of what the model makes");
  return kindling::run_program(argc, argv, registry);
}
