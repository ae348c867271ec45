#include <kindling/cli/program.h>

#include "digits_gan.h"
#include "sample_sheet.h"

int main(int argc, char** argv) {
  kindling::Registry registry;
  kindling::register_builtin(registry);
  registry.model<DigitsGan, DigitsGanOptions>("digits_gan", "generates handwritten digits of 8 x 8 pixels");
  registry.callback<SampleSheet, SampleSheetOptions>("sample_sheet", "writes an image of generated digits");
  return kindling::run_program(argc, argv, registry);
}
