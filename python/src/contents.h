// The contents of several dicts: which keys map to which objects, by identity. Call with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <vector>

namespace deepfreeze::python {

class Contents {
 public:
  void add(nanobind::handle dict) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    begins_.push_back(values_.size());
    // Another kind of dict may have another order than that in which it is walked here.
    is_known_ = is_known_ && PyDict_CheckExact(dict.ptr()) != 0;
    while (is_known_ && PyDict_Next(dict.ptr(), &at, &key, &value) != 0) {
      is_known_ = PyUnicode_CheckExact(key) != 0;  // another may compare as it likes
      if (!is_known_) return;                      // and may refer to this: nobody would collect it
      keys_.push_back(nanobind::borrow(key));
      values_.push_back(value);
    }
  }

  // Whether all that was added are dicts of Python's own, with strings as keys.
  [[nodiscard]] bool is_known() const { return is_known_; }
  [[nodiscard]] std::size_t dict_count() const { return begins_.size(); }

  // Whether a dict has the same keys, in the same order, for the same values as the one of that
  // number had. A new object with the address of an old one passes: it is in the old one's place.
  [[nodiscard]] bool is_in(nanobind::handle dict, std::size_t number) const {
    const std::size_t begin = begins_[number];
    const std::size_t end = number + 1 < begins_.size() ? begins_[number + 1] : values_.size();
    if (!is_known_ || PyDict_CheckExact(dict.ptr()) == 0 ||
        static_cast<std::size_t>(PyDict_Size(dict.ptr())) != end - begin) {
      return false;
    }
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    for (std::size_t i = begin; PyDict_Next(dict.ptr(), &at, &key, &value) != 0; ++i) {
      if (value != values_[i] || !is_key(keys_[i], key)) return false;
    }
    return true;
  }

  // The values of all dicts. They are only alive while is_in() is true for the dict of each.
  [[nodiscard]] std::span<PyObject* const> values() const { return values_; }

 private:
  // Nothing of Python's may run while a dict is walked, so only strings are compared by value.
  static bool is_key(nanobind::handle known, PyObject* key) {
    if (known.ptr() == key) return true;
    return PyUnicode_CheckExact(key) != 0 && PyUnicode_Compare(known.ptr(), key) == 0;
  }

  bool is_known_ = true;
  std::vector<std::size_t> begins_;
  std::vector<nanobind::object> keys_;
  std::vector<PyObject*> values_;  // compared, never looked at: they may be gone
};

}  // namespace deepfreeze::python
