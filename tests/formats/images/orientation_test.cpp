// Where files say how their pixels are turned, besides the blocks of EXIF that the tests of each format have.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "formats/images/image_codecs.h"
#include "formats/images/image_fixtures.h"
#include "kindling/formats/image.h"
#include "support/png_bytes.h"

namespace kindling {
namespace {

std::string exif_with(int orientation) {
  return std::string("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) +
         static_cast<char>(orientation) + std::string(6, '\0');
}

// As ImageMagick writes it.
std::string raw_profile(const std::string& exif) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "\nexif\n      " + std::to_string(exif.size()) + "\n";
  for (std::size_t i = 0; i < exif.size(); ++i) {
    const auto byte = static_cast<unsigned char>(exif[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
    if (i % 36 == 35) text += '\n';
  }
  return text + "\n";
}

std::string xmp_attribute(char orientation) {
  return std::string("<x:xmpmeta><rdf:Description tiff:Orientation=\"") + orientation + "\"/></x:xmpmeta>";
}

std::string itxt(const std::string& text, bool is_compressed) {
  return png_chunk("iTXt", std::string("XML:com.adobe.xmp\0", 18) + (is_compressed ? '\1' : '\0') +
                               std::string(3, '\0') + (is_compressed ? compressed_zlib(text) : text));
}

// A row of two pixels, which orientation 3 exchanges.
Pixels pixels_with(const std::string& chunks) {
  return parse_image(png_bytes({.width = 2, .rows = std::string("\0\x0a\xc8", 3), .before_rows = chunks}),
                     "x")
      .pixels;
}

TEST(OrientationOfPng, IsThatOfExifOrTexts) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const Pixels as_stored{10, 200}, turned{200, 10};
  const std::string exif = raw_profile(exif_with(3)), name("Raw profile type exif\0", 22);
  EXPECT_EQ(pixels_with(""), as_stored);
  EXPECT_EQ(pixels_with(png_chunk("eXIf", exif_with(3))), turned);
  EXPECT_EQ(pixels_with(png_chunk("tEXt", name + exif)), turned);
  EXPECT_EQ(pixels_with(png_chunk("zTXt", name + '\0' + compressed_zlib(exif))), turned);
  EXPECT_EQ(pixels_with(itxt(xmp_attribute('3'), false)), turned);
  EXPECT_EQ(pixels_with(itxt(xmp_attribute('3'), true)), turned);
  EXPECT_EQ(pixels_with(itxt("<tiff:Orientation>3</tiff:Orientation>", false)), turned);
  EXPECT_EQ(pixels_with(itxt("<tiff:Orientation rdf:about=''/><a tiff:Orientation='3'/>", false)), turned);
  // EXIF comes first.
  EXPECT_EQ(pixels_with(itxt(xmp_attribute('3'), false) + png_chunk("eXIf", exif_with(1))), as_stored);
  EXPECT_EQ(pixels_with(itxt(xmp_attribute('1'), false) + png_chunk("eXIf", exif_with(3))), turned);
}

TEST(OrientationOfPng, IsUprightIfMetadataAreDamaged) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const Pixels as_stored{10, 200};
  const std::string exif = raw_profile(exif_with(3)), name("Raw profile type exif\0", 22);
  EXPECT_EQ(pixels_with(itxt(xmp_attribute('9'), false)), as_stored);
  EXPECT_EQ(pixels_with(itxt("<a tiff:Orientation=\"", false)), as_stored);
  EXPECT_EQ(pixels_with(itxt("<a tiff:Orientation", false)), as_stored);
  for (const std::size_t size : {0, 1, 6, 30, 50})
    EXPECT_EQ(pixels_with(png_chunk("tEXt", name + exif.substr(0, size))), as_stored) << size;
  EXPECT_EQ(pixels_with(png_chunk("zTXt", name)), as_stored);
  EXPECT_EQ(pixels_with(png_chunk("zTXt", name + '\0' + compressed_zlib(exif).substr(0, 20))), as_stored);
  EXPECT_EQ(pixels_with(png_chunk("iTXt", std::string("XML:com.adobe.xmp\0", 18))), as_stored);
  EXPECT_EQ(pixels_with(png_chunk("iTXt", std::string("XML:com.adobe.xmp\0\1\0", 20))), as_stored);
  EXPECT_EQ(pixels_with(png_chunk("iTXt", "XML:com.adobe.xmp")), as_stored);
  // Larger than the metadata of a photograph.
  EXPECT_EQ(pixels_with(itxt(xmp_attribute('3') + std::string(std::size_t{1} << 21, ' '), true)), as_stored);
}

TEST(OrientationOfJpeg, IsThatOfXmpWithoutExif) {
  const std::string jpeg = image_fixture("gradient.jpg"),
                    xmp = std::string("http://ns.adobe.com/xap/1.0/\0", 29) + xmp_attribute('3'),
                    segment = std::string("\xff\xe1\0", 3) + static_cast<char>(xmp.size() + 2) + xmp;
  const Pixels stored = parse_image(jpeg, "x").pixels,
               turned = parse_image(jpeg.substr(0, 2) + segment + jpeg.substr(2), "x").pixels;
  ASSERT_EQ(turned.size(), stored.size());
  for (std::size_t i = 0; i < stored.size(); i += 3)
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(turned[i + c], stored[stored.size() - 3 - i + c]);
}

TEST(OrientationOfWebp, IsThatOfXmpWithoutExif) {
  if (!can_read_webp()) GTEST_SKIP() << "built without libwebp";
  const std::string webp = image_fixture("lossless.webp"), xmp = xmp_attribute('3'),
                    chunk =
                        "XMP " + std::string(1, static_cast<char>(xmp.size())) + std::string(3, '\0') + xmp;
  const Pixels stored = parse_image(webp, "x").pixels, turned = parse_image(webp + chunk, "x").pixels;
  ASSERT_EQ(turned.size(), stored.size());
  for (std::size_t i = 0; i < stored.size(); i += 3)
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(turned[i + c], stored[stored.size() - 3 - i + c]);
}

}  // namespace
}  // namespace kindling
