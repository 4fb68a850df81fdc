// _penstock.dataset, on which penstock.dataset is built.
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/dataset.hpp"
#include "penstock/error.hpp"
#include "penstock/read_window.hpp"
#include "penstock/sample_index.hpp"

namespace nb = nanobind;
using namespace penstock;

namespace {

nb::dlpack::dtype dlpack_type(DType dtype) {
  const std::string spelled = python::numpy_name(dtype);
  const auto bits = static_cast<std::uint8_t>(8 * size_bytes(dtype));
  const auto made = [bits](nb::dlpack::dtype_code code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), bits, 1};
  };
  switch (spelled[1]) {
    case 'i': return made(nb::dlpack::dtype_code::Int);
    case 'u': return made(nb::dlpack::dtype_code::UInt);
    case 'f': return made(nb::dlpack::dtype_code::Float);
    case 'c': return made(nb::dlpack::dtype_code::Complex);
    default: break;
  }
  throw Error(ErrorCode::unsupported,
              "NumPy has no arrays of " + std::string(name(dtype)) + "; decode to uint16 and view the result");
}

/// A NumPy array on memory that `owner` keeps alive.
nb::object numpy_array(void* data, const SampleForm& form, std::optional<std::uint64_t> samples, nb::handle owner) {
  std::vector<std::size_t> shape;
  if (samples) shape.push_back(*samples);
  shape.insert(shape.end(), form.shape.begin(), form.shape.end());
  static std::byte nothing[1];
  return nb::cast(nb::ndarray<nb::numpy>(data == nullptr ? nothing : data, shape.size(), shape.data(), owner, nullptr,
                                         dlpack_type(form.dtype)));
}

template <class T>
nb::capsule owner_of(T value) {
  return nb::capsule(new T(std::move(value)), [](void* p) noexcept { delete static_cast<T*>(p); });
}

/// Keeps a Python object alive for C++. It may be released on any thread, even after the interpreter has ended.
std::shared_ptr<void> shared_object(nb::object object) {
  return {object.release().ptr(), [](void* p) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire gil;
            Py_DECREF(static_cast<PyObject*>(p));
          }};
}

nb::object borrowed(const std::shared_ptr<void>& object) { return nb::borrow(static_cast<PyObject*>(object.get())); }

/// (samples, labels, indices). The arrays share the batch; the last of them returns it to the pipeline. A batch of
/// trees is (tree, None, indices); the tree is None for an empty batch.
nb::tuple arrays(const Batch& batch, bool trees) {
  const nb::capsule owner = owner_of(batch);
  const nb::object indices = numpy_array(batch.indices().data(), {DType::uint64, {}}, batch.indices().size(), owner);
  if (batch.object()) return nb::make_tuple(borrowed(batch.object()), nb::none(), indices);
  if (trees && batch.size() == 0) return nb::make_tuple(nb::none(), nb::none(), indices);
  nb::object images;
  if (batch.ragged()) {
    nb::list samples;
    for (std::uint64_t i = 0; i < batch.size(); ++i) {
      const Bytes bytes = batch.sample(i);
      samples.append(numpy_array(bytes.data(), {DType::uint8, {bytes.size()}}, std::nullopt, owner));
    }
    images = samples;
  } else {
    images = numpy_array(batch.data().data(), batch.form(), batch.size(), owner);
  }
  return nb::make_tuple(images, numpy_array(batch.labels().data(), {DType::int64, {}}, batch.labels().size(), owner),
                        indices);
}

/// Functions that C++ holds. Python's garbage collector cannot see these references, and a function often refers to its
/// dataset through its module. So they are released before the interpreter ends.
class HeldFunction {
 public:
  explicit HeldFunction(nb::callable function) : function_(std::move(function)) {
    const nb::ft_lock_guard lock(mutex());
    all().insert(this);
  }
  ~HeldFunction() {
    const nb::ft_lock_guard lock(mutex());
    all().erase(this);
  }
  HeldFunction(const HeldFunction&) = delete;
  HeldFunction& operator=(const HeldFunction&) = delete;

  template <class... Arguments>
  nb::object operator()(Arguments&&... arguments) const {
    const nb::object function = held();
    if (!function.is_valid()) throw Error(ErrorCode::invalid_argument, "is needed after the end of the interpreter");
    return function(std::forward<Arguments>(arguments)...);
  }

  /// Calls a function of the program that makes a sample. Throws if the sample was given up.
  template <class... Arguments>
  nb::object for_sample(Arguments&&... arguments) const {
    // Here the thread is one that the interpreter knows: what gives its sample up after this line interrupts it.
    if (sample_is_given_up()) throw Error(ErrorCode::io, "was given up");
    return (*this)(std::forward<Arguments>(arguments)...);
  }

  static std::shared_ptr<HeldFunction> make(nb::callable function) {
    return {new HeldFunction(std::move(function)), [](HeldFunction* p) {
              if (!Py_IsInitialized()) return;
              const nb::gil_scoped_acquire gil;
              delete p;
            }};
  }

  static void forget_all() {
    std::vector<nb::object> going;          // destructors may run any Python code
    const nb::ft_lock_guard lock(mutex());  // unlocked before they run
    for (HeldFunction* held : all()) going.push_back(std::exchange(held->function_, nb::object()));
  }

 private:
  nb::object held() const {
    const nb::ft_lock_guard lock(mutex());
    return function_;
  }
  /// Does what the GIL does, where there is none.
  static nb::ft_mutex& mutex() {
    static nb::ft_mutex mutex;
    return mutex;
  }
  static std::set<HeldFunction*>& all() {
    static std::set<HeldFunction*> functions;
    return functions;
  }

  nb::object function_;
};

/// Calls a stage: function(sample, label, (epoch, index, position)). The sample is an array with an integer label, or a
/// tree with label None. It returns (array, label), (tree, None), or None to drop the sample. The array owns the
/// sample's memory, so the function may keep it.
class PythonMap {
 public:
  explicit PythonMap(nb::callable function) : function_(HeldFunction::make(std::move(function))) {}

  void operator()(Sample& sample) const {
    const nb::gil_scoped_acquire gil;
    try {
      nb::object value, label = nb::none();
      if (sample.object) {
        value = borrowed(sample.object);
      } else {
        auto* data = new std::vector<std::byte>(std::move(sample.data));
        const nb::capsule owner(data, [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
        value = numpy_array(data->data(), sample.form, std::nullopt, owner);
        label = nb::int_(sample.label);
      }
      const nb::object result =
          function_->for_sample(value, label, nb::make_tuple(sample.epoch, sample.index, sample.position));
      sample.keep = !result.is_none();
      if (!sample.keep) return;
      if (result[1].is_none()) {
        sample.object = shared_object(nb::borrow(result[0]));
        return;
      }
      const python::ArrayView view =
          python::view(result[0], python::Access::read, "the array that the map function returned");
      sample.object.reset();
      sample.form.dtype = view.dtype();
      sample.form.shape.assign(view.shape().begin(), view.shape().end());
      sample.data.assign(view.bytes().begin(), view.bytes().end());
      sample.label = nb::cast<std::int64_t>(result[1]);
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument, "makes its stage fail", -1, error.what());
    } catch (const nb::cast_error& error) {
      throw Error(ErrorCode::invalid_argument, "gets a label from the map function that is not an integer of 64 bits",
                  -1, error.what());
    }
  }

 private:
  std::shared_ptr<HeldFunction> function_;
};

ObjectCalls object_calls(nb::callable collate, nb::callable copy, nb::callable size, nb::callable interrupt,
                         nb::callable pack, nb::callable unpack) {
  const auto held_pack = HeldFunction::make(std::move(pack));
  const auto held_unpack = HeldFunction::make(std::move(unpack));
  const auto held_collate = HeldFunction::make(std::move(collate));
  const auto held_copy = HeldFunction::make(std::move(copy));
  const auto held_size = HeldFunction::make(std::move(size));
  const auto held_interrupt = HeldFunction::make(std::move(interrupt));
  ObjectCalls calls;
  calls.collate = [held_collate](std::span<const std::shared_ptr<void>> samples) {
    const nb::gil_scoped_acquire gil;
    try {
      nb::list list;
      for (const std::shared_ptr<void>& sample : samples) list.append(borrowed(sample));
      const nb::object made = (*held_collate)(list);
      const auto size_bytes = nb::cast<std::uint64_t>(made[1]);
      return ObjectCalls::Collated{shared_object(nb::borrow(made[0])), size_bytes};
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument, "is in a batch whose samples cannot be collated", -1, error.what());
    }
  };
  calls.copy = [held_copy](const std::shared_ptr<void>& object) {
    const nb::gil_scoped_acquire gil;
    try {
      return shared_object((*held_copy)(borrowed(object)));
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument, "cannot be copied for the cache", -1, error.what());
    }
  };
  calls.size_bytes = [held_size](const std::shared_ptr<void>& object) {
    const nb::gil_scoped_acquire gil;
    try {
      return nb::cast<std::uint64_t>((*held_size)(borrowed(object)));
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument, "has no size for the cache", -1, error.what());
    }
  };
  calls.pack = [held_pack](const std::shared_ptr<void>& object) {
    const nb::gil_scoped_acquire gil;
    try {
      const auto packed = nb::cast<nb::bytes>((*held_pack)(borrowed(object)));
      const auto* data = reinterpret_cast<const std::byte*>(packed.c_str());
      return std::vector<std::byte>(data, data + packed.size());
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument, "cannot be put into the cache's files", -1, error.what());
    }
  };
  calls.unpack = [held_unpack](ConstBytes bytes) {
    const nb::gil_scoped_acquire gil;
    try {
      return shared_object((*held_unpack)(nb::bytes(bytes.data(), bytes.size())));
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::io, "cannot be read from the cache's files", -1, error.what());
    }
  };
  calls.interrupt = [held_interrupt](std::uint64_t thread) {
    if (!Py_IsInitialized()) return std::string();
    const nb::gil_scoped_acquire gil;
    try {
      return nb::cast<std::string>((*held_interrupt)(thread));
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  };
  return calls;
}

using Labels = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig>;

std::vector<std::int64_t> labels_from(const Labels& labels) { return {labels.data(), labels.data() + labels.size()}; }

/// What sources that ask the program share: the name of a sample, and that samples are needed soon.
template <class Source>
void set_calls(Source& source, nb::callable name, const std::optional<nb::callable>& announce,
               const std::optional<nb::callable>& wants_more) {
  source.name = [held = HeldFunction::make(std::move(name))](std::uint64_t index) {
    const nb::gil_scoped_acquire gil;
    try {
      return nb::cast<std::string>((*held)(index));
    } catch (const std::exception&) {
      return "sample " + std::to_string(index);
    }
  };
  if (wants_more)
    source.wants_more = [held = HeldFunction::make(*wants_more)] {
      const nb::gil_scoped_acquire gil;
      try {
        return nb::cast<bool>((*held)());
      } catch (const std::exception&) {
        return false;
      }
    };
  if (!announce) return;
  source.announce = [held = HeldFunction::make(*announce)](std::span<const std::uint64_t> indices) {
    const nb::gil_scoped_acquire gil;
    try {
      nb::list list;
      for (const std::uint64_t index : indices) list.append(index);
      (*held)(list);
    } catch (const nb::python_error&) {  // the samples are read when they are needed
    }
  };
}

Dataset from_objects(std::uint64_t size, nb::callable get, nb::callable name, const std::string& digest,
                     const std::optional<nb::callable>& announce, const std::optional<nb::callable>& wants_more) {
  ObjectSource source;
  source.size = size;
  source.digest = digest;
  source.get = [held = HeldFunction::make(std::move(get))](std::uint64_t index) {
    const nb::gil_scoped_acquire gil;
    try {
      return shared_object(held->for_sample(index));
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::io, "cannot be read", -1, error.what());
    }
  };
  set_calls(source, std::move(name), announce, wants_more);
  return Dataset::from_objects(std::move(source));
}

Dataset from_reader(std::uint64_t size, nb::callable read, nb::callable name,
                    const std::variant<std::shared_ptr<SampleIndex>, Labels>& labels, const std::string& digest,
                    const std::optional<nb::callable>& announce, const std::optional<nb::callable>& wants_more) {
  ReaderSource source;
  source.size = size;
  source.digest = digest;
  if (const auto* index = std::get_if<std::shared_ptr<SampleIndex>>(&labels))
    source.index = *index;
  else
    source.labels = labels_from(std::get<Labels>(labels));
  source.read = [held = HeldFunction::make(std::move(read))](std::uint64_t index, std::uint64_t max_bytes,
                                                             std::vector<std::byte>& buffer) {
    const nb::gil_scoped_acquire gil;
    try {
      const nb::object result = held->for_sample(index, max_bytes);
      const python::ArrayView view = python::view(result, python::Access::read, "the bytes of a sample");
      const ConstBytes bytes = view.bytes();
      if (buffer.size() < bytes.size()) buffer.resize(bytes.size());
      std::memcpy(buffer.data(), bytes.data(), bytes.size());
      return std::uint64_t{bytes.size()};
    } catch (nb::python_error& error) {
      throw Error(ErrorCode::io, "cannot be read", -1, error.what());
    }
  };
  set_calls(source, std::move(name), announce, wants_more);
  return Dataset::from_reader(std::move(source));
}

nb::bytes tfrecord(nb::handle record) {
  const python::ArrayView view = python::view(record, python::Access::read, "the record");
  const ConstBytes content = tfrecord_content(view.bytes());
  return nb::bytes(reinterpret_cast<const char*>(content.data()), content.size());
}

std::uint64_t tfrecord_size(nb::handle header) {
  return tfrecord_size_bytes(python::view(header, python::Access::read, "the header").bytes());
}

/// (path, begin, size, label)
std::tuple<nb::bytes, std::uint64_t, std::uint64_t, std::int64_t> entry(const SampleIndex& index, std::uint64_t at) {
  const IndexedSample sample = index.at(at);
  return std::make_tuple(nb::bytes(sample.path.data(), sample.path.size()), sample.begin, sample.size_bytes,
                         sample.label);
}

/// An iterator that never waits with the GIL held, neither for a batch nor for a lock: its threads may need the GIL.
class PythonIterator {
 public:
  PythonIterator(DatasetIterator iterator, bool trees) : iterator_(std::move(iterator)), trees_(trees) {}
  ~PythonIterator() { close(); }
  PythonIterator(const PythonIterator&) = delete;
  PythonIterator& operator=(const PythonIterator&) = delete;

  /// Where the threads that do not end are.
  std::vector<std::string> close() {
    std::optional<DatasetIterator> closing;
    {
      const nb::ft_lock_guard lock(mutex_);
      std::swap(closing, iterator_);
    }
    std::vector<std::string> left_behind;
    const nb::gil_scoped_release release;
    if (closing) left_behind = closing->close();
    closing.reset();
    return left_behind;
  }

  nb::object next() {
    std::optional<DatasetIterator> iterator = open();
    if (!iterator) throw Error(ErrorCode::invalid_argument, "this iterator is closed; take a new one from the dataset");
    std::optional<Batch> batch;
    for (bool ready = false; !ready;) {
      {
        const nb::gil_scoped_release release;
        ready = iterator->ready_within(std::chrono::milliseconds(100));
        if (ready) batch = iterator->next();
        if (ready) iterator.reset();
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return batch ? nb::object(arrays(*batch, trees_)) : nb::none();
  }

  template <class Query>
  auto ask(Query query) const {
    const std::optional<DatasetIterator> iterator = open();
    if (!iterator) throw Error(ErrorCode::invalid_argument, "this iterator is closed; take a new one from the dataset");
    const nb::gil_scoped_release release;
    return query(*iterator);
  }

 private:
  /// A copy, so that close() on another thread does not destroy the pipeline during a call.
  std::optional<DatasetIterator> open() const {
    const nb::ft_lock_guard lock(mutex_);
    return iterator_;
  }

  mutable nb::ft_mutex mutex_;
  std::optional<DatasetIterator> iterator_;
  bool trees_;
};

/// (epoch, position, skipped, [(epoch, first, stride, count), …])
using GivenRow = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
using StateRow = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::vector<GivenRow>>;

DatasetState state_from(const StateRow& row) {
  DatasetState state{std::get<0>(row), std::get<1>(row), std::get<2>(row)};
  for (const auto& [epoch, first, stride, count] : std::get<3>(row))
    state.given.push_back({epoch, first, stride, count});
  return state;
}

StateRow row_of(const DatasetState& state) {
  std::vector<GivenRow> given;
  for (const GivenSamples& some : state.given) given.emplace_back(some.epoch, some.first, some.stride, some.count);
  return {state.epoch, state.position, state.skipped, std::move(given)};
}

using SkippedRow = std::tuple<nb::bytes, std::uint64_t, std::uint64_t, std::uint64_t, std::string>;

using ImageOptions =
    std::optional<std::tuple<bool, bool, std::optional<std::tuple<double, double, double, double>>, double, double,
                             std::tuple<float, float, float>, std::tuple<float, float, float>, std::uint64_t>>;

DecodeOptions decode_options(const std::string& format, std::vector<std::uint64_t> shape, const std::string& dtype,
                             int threads, const ImageOptions& image) {
  DecodeOptions options{format, std::move(shape), dtype_from_name(dtype), threads};
  if (!image) return options;
  const auto& [planes, orient, crop, central_crop, flip, mean, deviation, seed] = *image;
  options.layout = planes ? ImageLayout::chw : ImageLayout::hwc;
  options.orient = orient;
  if (crop) options.random_crop = std::make_from_tuple<RandomCrop>(*crop);
  options.central_crop = central_crop;
  options.flip = flip;
  options.mean = {std::get<0>(mean), std::get<1>(mean), std::get<2>(mean)};
  options.deviation = {std::get<0>(deviation), std::get<1>(deviation), std::get<2>(deviation)};
  options.seed = seed;
  return options;
}

nb::object decode_image(nb::handle encoded, std::vector<std::uint64_t> shape, const std::string& dtype,
                        const ImageOptions& image, std::uint64_t max_pixels) {
  const python::ArrayView view = python::view(encoded, python::Access::read, "the image");
  auto data = std::make_unique<std::vector<std::byte>>();
  SampleForm form;
  {
    const nb::gil_scoped_release release;
    Sample sample = decode_sample(view.bytes(), decode_options("auto", std::move(shape), dtype, 0, image),
                                  {.pixels = max_pixels}, "the image");
    *data = std::move(sample.data);
    form = sample.form;
  }
  void* place = data->data();
  const nb::capsule owner(data.release(), [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  return numpy_array(place, form, std::nullopt, owner);
}

Dataset from_files(const nb::list& paths, const Labels& labels) {
  std::vector<std::string> own;
  own.reserve(paths.size());
  for (nb::handle path : paths) {
    const auto bytes = nb::cast<nb::bytes>(path);
    own.emplace_back(bytes.c_str(), bytes.size());
  }
  return Dataset::from_files(std::move(own), labels_from(labels));
}

Dataset from_bytes(const nb::list& samples, const Labels& labels) {
  std::vector<std::vector<std::byte>> own;
  own.reserve(samples.size());
  for (nb::handle sample : samples) {
    const python::ArrayView view = python::view(sample, python::Access::read, "a sample");
    own.emplace_back(view.bytes().begin(), view.bytes().end());
  }
  return Dataset::from_bytes(std::move(own), labels_from(labels));
}

}  // namespace

void bind_dataset(nb::module_& module) {
  nb::module_ part = module.def_submodule("dataset");
  part.def("decoder_names", &decoder_names);
  part.def("decode_image", &decode_image, nb::arg("encoded"), nb::arg("shape"), nb::arg("dtype"),
           nb::arg("image").none(), nb::arg("max_pixels"),
           nb::sig("def decode_image(encoded: typing.Any, shape: collections.abc.Sequence[int], dtype: str, "
                   "image: tuple[bool, bool, tuple[float, float, float, float] | None, float, float, "
                   "tuple[float, float, float], tuple[float, float, float], int] | None, max_pixels: int) "
                   "-> numpy.typing.NDArray[typing.Any]"));
  part.def("forget_functions", &HeldFunction::forget_all);
  part.def("tfrecord", &tfrecord, nb::arg("record"), nb::sig("def tfrecord(record: typing.Any) -> bytes"));
  part.def("tfrecord_size", &tfrecord_size, nb::arg("header"), nb::sig("def tfrecord_size(header: typing.Any) -> int"));
  nb::class_<SampleIndex>(part, "SampleIndex")
      .def("__len__", &SampleIndex::size)
      .def("__getitem__", &entry, nb::arg("at"))
      .def_prop_ro("kind", &SampleIndex::kind)
      .def_prop_ro("digest", &SampleIndex::digest);
  part.def(
      "open_index",
      [](const nb::bytes& file) {
        return std::const_pointer_cast<SampleIndex>(SampleIndex::open({file.c_str(), file.size()}));
      },
      nb::arg("file"));
  nb::class_<SampleIndexWriter>(part, "SampleIndexWriter")
      .def(
          "__init__",
          [](SampleIndexWriter* self, const nb::bytes& file, const std::string& kind) {
            new (self) SampleIndexWriter({file.c_str(), file.size()}, kind);
          },
          nb::arg("file"), nb::arg("kind"))
      .def(
          "add",
          [](SampleIndexWriter& self, const nb::bytes& path, std::uint64_t begin, std::uint64_t size,
             std::int64_t label) {
            self.add({{path.c_str(), path.size()}, begin, size, label});
          },
          nb::arg("path"), nb::arg("begin"), nb::arg("size"), nb::arg("label"), nb::lock_self())
      .def("commit", &SampleIndexWriter::commit, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<ReadWindow>(part, "ReadWindow")
      .def(nb::init<>())
      .def("finished", &ReadWindow::finished, nb::arg("begin_s"), nb::arg("end_s"), nb::arg("bytes"))
      .def_prop_ro("bytes", &ReadWindow::bytes)
      .def_prop_ro("latency_s", &ReadWindow::latency_s)
      .def_prop_ro("rate", &ReadWindow::rate);
  nb::class_<PythonIterator>(part, "Iterator")
      .def("next", &PythonIterator::next,
           nb::sig("def next(self) -> tuple[numpy.typing.NDArray[typing.Any] | "
                   "list[numpy.typing.NDArray[numpy.uint8]], numpy.typing.NDArray[numpy.int64], "
                   "numpy.typing.NDArray[numpy.uint64]] | None"))
      .def("close", &PythonIterator::close)
      .def("state",
           [](const PythonIterator& self) {
             return row_of(self.ask([](const DatasetIterator& it) { return it.state(); }));
           })
      .def("stats",
           [](const PythonIterator& self) {
             const DatasetStats s = self.ask([](const DatasetIterator& it) { return it.stats(); });
             return std::make_tuple(s.wait_s, s.read_s, s.decode_s, s.map_s, s.collate_s, s.elapsed_s, s.threads,
                                    s.read_bytes, s.samples, s.batches, s.skipped, s.held_bytes, s.readers, s.prefetch);
           })
      .def(
          "skipped",
          [](const PythonIterator& self, std::size_t first) {
            std::vector<SkippedRow> rows;
            for (const SkippedSample& one : self.ask([first](const DatasetIterator& it) { return it.skipped(first); }))
              rows.emplace_back(nb::bytes(one.path.data(), one.path.size()), one.index, one.epoch, one.position,
                                one.reason);
            return rows;
          },
          nb::arg("first"));
  nb::class_<Dataset>(part, "Chain")
      .def_static("from_files", &from_files, nb::arg("paths"), nb::arg("labels"),
                  nb::sig("def from_files(paths: list[bytes], labels: numpy.typing.NDArray[numpy.int64]) -> Chain"))
      .def_static("from_bytes", &from_bytes, nb::arg("samples"), nb::arg("labels"),
                  nb::sig("def from_bytes(samples: list[typing.Any], "
                          "labels: numpy.typing.NDArray[numpy.int64]) -> Chain"))
      .def_static("from_objects", &from_objects, nb::arg("size"), nb::arg("get"), nb::arg("name"), nb::arg("digest"),
                  nb::arg("announce").none(), nb::arg("wants_more").none() = nb::none(),
                  nb::sig("def from_objects(size: int, get: collections.abc.Callable[[int], typing.Any], "
                          "name: collections.abc.Callable[[int], str], digest: str, "
                          "announce: collections.abc.Callable[[list[int]], typing.Any] | None, "
                          "wants_more: collections.abc.Callable[[], bool] | None = None) -> Chain"))
      .def_static("from_reader", &from_reader, nb::arg("size"), nb::arg("read"), nb::arg("name"), nb::arg("labels"),
                  nb::arg("digest"), nb::arg("announce").none(), nb::arg("wants_more").none() = nb::none(),
                  nb::sig("def from_reader(size: int, read: collections.abc.Callable[[int, int], typing.Any], "
                          "name: collections.abc.Callable[[int], str], "
                          "labels: SampleIndex | numpy.typing.NDArray[numpy.int64], "
                          "digest: str, announce: collections.abc.Callable[[list[int]], typing.Any] | None, "
                          "wants_more: collections.abc.Callable[[], bool] | None = None) -> Chain"))
      .def_static(
          "from_index", [](const std::shared_ptr<SampleIndex>& index) { return Dataset::from_index(index); },
          nb::arg("index"))
      .def_static(
          "mix",
          [](const std::vector<Dataset>& chains, const std::vector<std::uint32_t>& weights,
             std::optional<std::uint64_t> samples) { return Dataset::mix(chains, weights, samples); },
          nb::arg("chains"), nb::arg("weights"), nb::arg("samples").none())
      .def_static(
          "interleave",
          [](const std::vector<Dataset>& chains, std::uint64_t block) { return Dataset::interleave(chains, block); },
          nb::arg("chains"), nb::arg("block"))
      .def(
          "shuffle", [](const Dataset& self, std::uint64_t seed) { return self.shuffle(seed); }, nb::arg("seed"))
      .def(
          "shuffle_blocks",
          [](const Dataset& self, std::uint64_t seed, std::uint64_t block, std::uint64_t window) {
            return self.shuffle(seed, {block, window});
          },
          nb::arg("seed"), nb::arg("block"), nb::arg("window"))
      .def(
          "bucket_by_length",
          [](const Dataset& self, const nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig>& lengths,
             std::uint64_t group, std::uint64_t window) {
            return self.bucket_by_length({lengths.data(), lengths.data() + lengths.size()}, group, window);
          },
          nb::arg("lengths"), nb::arg("group"), nb::arg("window"),
          nb::sig("def bucket_by_length(self, lengths: numpy.typing.NDArray[numpy.uint32], group: int, window: int) "
                  "-> Chain"))
      .def("take", &Dataset::take, nb::arg("samples"))
      .def("skip", &Dataset::skip, nb::arg("samples"))
      .def(
          "decode",
          [](const Dataset& self, const std::string& format, std::vector<std::uint64_t> shape, const std::string& dtype,
             int threads, const ImageOptions& image) {
            return self.decode(decode_options(format, std::move(shape), dtype, threads, image));
          },
          nb::arg("format"), nb::arg("shape"), nb::arg("dtype"), nb::arg("threads"), nb::arg("image").none())
      .def(
          "map",
          [](const Dataset& self, nb::callable function, int parallel) {
            return self.map(PythonMap(std::move(function)), parallel);
          },
          nb::arg("function"), nb::arg("parallel"),
          nb::sig("def map(self, function: collections.abc.Callable[[typing.Any, typing.Any, tuple[int, int, int]], "
                  "tuple[typing.Any, int | None] | None], parallel: int) -> Chain"))
      .def(
          "cache", [](const Dataset& self, std::uint64_t max_bytes) { return self.cache(max_bytes); },
          nb::arg("max_bytes"))
      .def(
          "cache_files",
          [](const Dataset& self, const nb::bytes& folder, const std::string& stages, std::uint64_t max_bytes) {
            return self.cache({{folder.c_str(), folder.size()}, stages, max_bytes});
          },
          nb::arg("folder"), nb::arg("stages"), nb::arg("max_bytes"))
      .def(
          "ignore_errors",
          [](const Dataset& self, std::int64_t max, bool replace) {
            return self.ignore_errors({max, replace});
          },
          nb::arg("max"), nb::arg("replace"))
      .def(
          "limits",
          [](const Dataset& self, std::uint64_t bytes, std::uint64_t pixels, std::int64_t milliseconds) {
            return self.limits({bytes, pixels, std::chrono::milliseconds(milliseconds)});
          },
          nb::arg("bytes"), nb::arg("pixels"), nb::arg("milliseconds"))
      .def(
          "budget",
          [](const Dataset& self, int cpus, std::uint64_t ram_bytes) {
            return self.budget({cpus, ram_bytes});
          },
          nb::arg("cpus"), nb::arg("ram_bytes"))
      .def(
          "objects",
          [](const Dataset& self, nb::callable collate, nb::callable copy, nb::callable size, nb::callable interrupt,
             nb::callable pack, nb::callable unpack) {
            return self.objects(object_calls(std::move(collate), std::move(copy), std::move(size), std::move(interrupt),
                                             std::move(pack), std::move(unpack)));
          },
          nb::arg("collate"), nb::arg("copy"), nb::arg("size"), nb::arg("interrupt"), nb::arg("pack"),
          nb::arg("unpack"),
          nb::sig("def objects(self, collate: collections.abc.Callable[[list[typing.Any]], tuple[typing.Any, int]], "
                  "copy: collections.abc.Callable[[typing.Any], typing.Any], "
                  "size: collections.abc.Callable[[typing.Any], int], "
                  "interrupt: collections.abc.Callable[[int], str], "
                  "pack: collections.abc.Callable[[typing.Any], bytes], "
                  "unpack: collections.abc.Callable[[bytes], typing.Any]) -> Chain"))
      .def("batch", &Dataset::batch, nb::arg("samples"), nb::arg("drop_remainder"))
      .def("prefetch", &Dataset::prefetch, nb::arg("batches"), nb::arg("max_bytes"), nb::arg("in_order"),
           nb::arg("adapts"))
      .def("shard", &Dataset::shard, nb::arg("rank"), nb::arg("size"))
      .def("repeat", &Dataset::repeat, nb::arg("epochs"))
      .def_prop_ro("samples", &Dataset::samples)
      .def_prop_ro("batches", &Dataset::batches)
      .def_prop_ro("order", &Dataset::order)
      .def("digest", &Dataset::digest, nb::call_guard<nb::gil_scoped_release>())
      .def("index_at", &Dataset::index_at, nb::arg("epoch"), nb::arg("position"))
      .def(
          "iterate",
          [](const Dataset& self, const StateRow& from, bool trees) {
            return new PythonIterator(self.iterate(state_from(from)), trees);
          },
          nb::arg("from_state"), nb::arg("trees"))
      .def(
          "merge",
          [](const Dataset& self, const std::vector<StateRow>& ranks) {
            std::vector<DatasetState> states;
            for (const StateRow& rank : ranks) states.push_back(state_from(rank));
            return row_of(self.merge(states));
          },
          nb::arg("ranks"));
}
