#include "image_pixels.h"

#include <kindling/base/error.h>
#include <kindling/formats/image.h>

#include <iostream>
#include <string>

namespace kindling_bench {

void image_pixels(const Options&) {
  for (std::string path; std::getline(std::cin, path);) try {
      const kindling::Image image = kindling::read_image(path, {.channels = 3});
      std::cout << image.height << " " << image.width << " " << image.channels << "\n";
      std::cout.write(reinterpret_cast<const char*>(image.pixels.data()),
                      static_cast<std::streamsize>(image.pixels.size()));
    } catch (const kindling::Error& error) {
      std::string text = error.what();
      for (char& character : text)
        if (character == '\n') character = ' ';
      std::cout << "error " << text << "\n";
    }
}

}  // namespace kindling_bench
