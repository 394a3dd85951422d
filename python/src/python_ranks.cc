#include "python_ranks.h"

#include <string>
#include <utility>

#include "errors.h"

namespace nb = nanobind;

namespace deepfreeze::python {
namespace {

Error error_of(const nb::python_error& raised, const char* call) {
  if (!raised.matches(PyExc_Exception)) keep_until_return(raised);
  const ErrorCode code = raised.matches(PyExc_TimeoutError) ? ErrorCode::kTimeout : ErrorCode::kIo;
  return {code, std::string("ranks: ") + call + ": " + description_of(raised)};
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

std::string from_bytes(nb::handle value) {
  const auto bytes = nb::cast<nb::bytes>(value);
  return {bytes.c_str(), bytes.size()};
}

class PythonRanks final : public RankGroup {
 public:
  explicit PythonRanks(nb::object group)
      : group_(std::move(group)),
        rank_(nb::cast<std::uint32_t>(group_.attr("rank"))),
        world_size_(nb::cast<std::uint32_t>(group_.attr("world_size"))) {}

  ~PythonRanks() override {
    const nb::gil_scoped_acquire held;
    group_.reset();
  }

  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const override { return world_size_; }

  [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
    return called("gather", [&]() -> std::vector<std::string> {
      const nb::object given = group_.attr("gather")(to_bytes(bytes));
      std::vector<std::string> all;
      if (rank_ != 0) return all;
      for (const nb::handle one : given) all.push_back(from_bytes(one));
      return all;
    });
  }

  [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
    return called("scatter", [&] {
      nb::list all;
      for (const std::string& one : bytes) all.append(to_bytes(one));
      return from_bytes(group_.attr("scatter")(all));
    });
  }

 private:
  template <class Call>
  auto called(const char* name, Call call) -> Result<decltype(call())> {
    const nb::gil_scoped_acquire held;
    try {
      return call();
    } catch (const nb::python_error& raised) {
      return std::unexpected(error_of(raised, name));
    } catch (const std::exception& cause) {  // the return value is not bytes
      return std::unexpected(
          Error(ErrorCode::kInternal, std::string("ranks: ") + name + ": " + cause.what()));
    }
  }

  nb::object group_;
  const std::uint32_t rank_;
  const std::uint32_t world_size_;
};

}  // namespace

std::shared_ptr<RankGroup> make_ranks(nb::object group) {
  if (group.is_none()) return nullptr;
  return std::make_shared<PythonRanks>(std::move(group));
}

}  // namespace deepfreeze::python
