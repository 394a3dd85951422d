// Texts that nobody else may see, such as keys. Their memory is cleared when they go.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace deepfreeze {

// Clears all the memory that the text has, and leaves it empty.
void wipe(std::string& secret);

// Owns one text. It can't be formatted, so that no message shows it by mistake. A moved-from one is
// empty.
class Secret {
 public:
  Secret() = default;
  Secret(std::string&& text) : text_(std::move(text)) { wipe(text); }
  Secret(const std::string& text) : text_(text) {}
  Secret(std::string_view text) : text_(text) {}
  Secret(const char* text) : text_(text) {}
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : Secret(std::move(other.text_)) {}
  Secret& operator=(Secret other) noexcept {
    wipe(text_);  // or the longer of two texts would stay in memory
    text_ = std::move(other.text_);
    return *this;
  }
  ~Secret() { wipe(text_); }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool empty() const { return text_.empty(); }
  bool operator==(const Secret&) const = default;

 private:
  std::string text_;
};

}  // namespace deepfreeze
