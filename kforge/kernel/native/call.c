// A repeated call of a Kernel without Python in the way: key, plan, packed arguments, cuLaunchKernelEx.
//
// A Caller either launches and answers True, or has done nothing and answers False; then kernel.py, which defines what a
// call means, does all of it. So nothing here reports an error: what is unusual or wrong is somebody else's.
// Bool, int and float arguments of these exact types, and tensors of the classes Tensor and Parameter, are taken.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MAX_ARGUMENTS = 64, MAX_WORDS = 512, INVALID = -1, UNUSUAL = 0, DONE = 1 };

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} Config;  // CUlaunchConfig

typedef int (*Start)(const Config *, void *, void **, void **);

typedef struct {
    Py_ssize_t a, b;
    uint64_t a_bytes, b_bytes;
} Pair;

// What torch offers, taken from its classes once: methods and attributes are called without a look-up by name.
static PyObject *tensor_class, *parameter_class, *grad_enabled, *current_device, *current_stream, *counts;
static PyObject *data_ptr, *get_device, *numel, *is_contiguous, *stride, *is_conj, *is_neg, *dtype, *requires_grad, *shape;

static PyObject *method(PyObject *function, PyObject *self) { return PyObject_Vectorcall(function, &self, 1, NULL); }

static PyObject *attribute(PyObject *descriptor, PyObject *self) {
    return Py_TYPE(descriptor)->tp_descr_get(descriptor, self, (PyObject *)Py_TYPE(self));
}

static int take_integer(PyObject *value, uint64_t *word) {  // steals value
    if (value == NULL) return INVALID;
    *word = PyLong_AsUnsignedLongLongMask(value);
    Py_DECREF(value);
    return *word == (uint64_t)-1 && PyErr_Occurred() ? INVALID : DONE;
}

static int take_truth(PyObject *value, uint64_t *word) {  // steals value
    if (value == NULL) return INVALID;
    *word = value == Py_True;
    Py_DECREF(value);
    return DONE;
}

static int take_sizes(PyObject *sizes, uint64_t *words, Py_ssize_t *count) {  // steals sizes
    if (sizes == NULL) return INVALID;
    Py_ssize_t n = PyTuple_Check(sizes) ? PyTuple_GET_SIZE(sizes) : MAX_WORDS;
    int answer = *count + n + 1 <= MAX_WORDS ? DONE : UNUSUAL;
    if (answer == DONE) words[(*count)++] = (uint64_t)n;
    for (Py_ssize_t i = 0; answer == DONE && i < n; ++i)
        answer = take_integer(Py_NewRef(PyTuple_GET_ITEM(sizes, i)), &words[(*count)++]);
    Py_DECREF(sizes);
    return answer;
}

// Bound: what one plan launches

typedef struct {
    PyObject_HEAD
    Start start;
    void *function;
    Config config;
    long device;
    Py_ssize_t slot_count, pair_count, workspace_at;
    char slots[MAX_ARGUMENTS];
    Pair *pairs;
    PyObject *device_number, *name, *workspace, *keep;
} Bound;

static void bound_free(Bound *self) {
    PyMem_Free(self->pairs);
    Py_XDECREF(self->device_number);
    Py_XDECREF(self->name);
    Py_XDECREF(self->workspace);
    Py_XDECREF(self->keep);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *bound_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    unsigned long long start, function;
    Py_buffer config;
    const char *slots;
    Py_ssize_t slot_count, workspace_at;
    long device;
    PyObject *name, *workspace, *pairs, *keep;
    if (!PyArg_ParseTuple(args, "KKy*s#lOOnO!O", &start, &function, &config, &slots, &slot_count, &device, &name,
                          &workspace, &workspace_at, &PyTuple_Type, &pairs, &keep))
        return NULL;
    Bound *self = NULL;
    if (config.len != sizeof(Config) || slot_count > MAX_ARGUMENTS) {
        PyErr_SetString(PyExc_ValueError, "a launch configuration of another size, or too many arguments");
    } else if ((self = (Bound *)type->tp_alloc(type, 0)) != NULL) {
        self->start = (Start)(uintptr_t)start;
        self->function = (void *)(uintptr_t)function;
        memcpy(&self->config, config.buf, sizeof(Config));
        memcpy(self->slots, slots, slot_count);
        self->slot_count = slot_count;
        self->device = device;
        self->device_number = PyLong_FromLong(device);
        self->name = Py_NewRef(name);
        self->workspace = workspace == Py_None ? NULL : Py_NewRef(workspace);
        self->workspace_at = workspace_at;
        self->keep = Py_NewRef(keep);
        self->pair_count = PyTuple_GET_SIZE(pairs);
        self->pairs = PyMem_Calloc(self->pair_count + 1, sizeof(Pair));
        if (self->pairs == NULL) PyErr_NoMemory();
        for (Py_ssize_t i = 0; self->pairs != NULL && i < self->pair_count; ++i) {
            Pair *p = &self->pairs[i];
            unsigned long long a_bytes, b_bytes;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "nnKK", &p->a, &p->b, &a_bytes, &b_bytes)) break;
            p->a_bytes = a_bytes;
            p->b_bytes = b_bytes;
        }
        if (PyErr_Occurred()) Py_CLEAR(self);
    }
    PyBuffer_Release(&config);
    return (PyObject *)self;
}

static PyTypeObject BoundType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kforge_call.Bound",
    .tp_basicsize = sizeof(Bound),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Bound(start, function, config, slots, device, name, workspace, workspace_at, pairs, keep)",
    .tp_new = bound_new,
    .tp_dealloc = (destructor)bound_free,
};

// Packs as `struct` does for a slot of this format, refusing what does not fit.
static int pack(char format, PyObject *value, uint64_t *slot) {
    if (format == 'f' || format == 'd') {
        double number = PyFloat_AsDouble(value);
        if (number == -1.0 && PyErr_Occurred()) return INVALID;
        float narrow = (float)number;
        if (format == 'd') memcpy(slot, &number, sizeof number);
        else memcpy(slot, &narrow, sizeof narrow);
        return format == 'f' && isinf(narrow) && !isinf(number) ? UNUSUAL : DONE;
    }
    if (format == '?') {
        *slot = value == Py_True;
        return PyBool_Check(value) ? DONE : UNUSUAL;
    }
    if (!PyLong_Check(value)) return UNUSUAL;
    int bits = strchr("bB", format) ? 8 : strchr("hH", format) ? 16 : strchr("iI", format) ? 32 : 64;
    if (strchr("BHIQ", format)) {
        unsigned long long number = PyLong_AsUnsignedLongLong(value);
        if (number == (unsigned long long)-1 && PyErr_Occurred()) return INVALID;
        *slot = number;
        return bits < 64 && number >> bits ? UNUSUAL : DONE;
    }
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred()) return INVALID;
    *slot = (uint64_t)number;
    return bits < 64 && number >> (bits - 1) != 0 && number >> (bits - 1) != -1 ? UNUSUAL : DONE;
}

// Caller: one Kernel's arguments

typedef struct {
    PyObject_HEAD
    Py_ssize_t arity;
    char kinds[MAX_ARGUMENTS];  // p: pointer, v: pointer to a view of any layout, k: scalar by value, c: by class alone
} Caller;

static PyObject *caller_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    const char *kinds;
    Py_ssize_t arity;
    if (!PyArg_ParseTuple(args, "s#", &kinds, &arity)) return NULL;
    if (arity > MAX_ARGUMENTS) return PyErr_Format(PyExc_ValueError, "more than %d arguments", MAX_ARGUMENTS);
    Caller *self = (Caller *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->arity = arity;
    memcpy(self->kinds, kinds, arity);
    return (PyObject *)self;
}

static int tensor_words(PyObject *tensor, char kind, uint64_t *address, uint64_t *words, Py_ssize_t *count) {
    *address = 0;
    if (*count + 4 > MAX_WORDS) return UNUSUAL;
    if (tensor == Py_None) {
        words[(*count)++] = 0;
        return DONE;
    }
    if ((PyObject *)Py_TYPE(tensor) != tensor_class && (PyObject *)Py_TYPE(tensor) != parameter_class) return UNUSUAL;
    uint64_t device, contiguous, grad;
    PyObject *type = attribute(dtype, tensor);
    if (type == NULL) return INVALID;
    Py_DECREF(type);  // dtypes live as long as torch does
    uint64_t *at = &words[*count];
    at[0] = (uint64_t)(uintptr_t)type;
    if (take_integer(method(data_ptr, tensor), address) != DONE) return INVALID;
    if (*address == 0) return UNUSUAL;  // empty, or without memory (meta tensors give the CPU's device number too)
    if (take_integer(method(numel, tensor), &at[1]) != DONE) return INVALID;
    if (take_integer(method(get_device, tensor), &device) != DONE) return INVALID;
    if (take_truth(method(is_contiguous, tensor), &contiguous) != DONE) return INVALID;
    if (take_truth(attribute(requires_grad, tensor), &grad) != DONE) return INVALID;
    if (grad && take_truth(PyObject_CallNoArgs(grad_enabled), &grad) != DONE) return INVALID;
    // the lowest set bit up to 512: the alignment class that aligned() can tell apart
    at[2] = (*address & -*address & 1023) | contiguous << 10 | grad << 11;
    at[3] = device;
    *count += 4;
    if (kind != 'v') return DONE;
    uint64_t conjugate, negative;
    if (take_truth(method(is_conj, tensor), &conjugate) != DONE) return INVALID;
    if (take_truth(method(is_neg, tensor), &negative) != DONE) return INVALID;
    at[2] |= conjugate << 12 | negative << 13;
    int answer = take_sizes(attribute(shape, tensor), words, count);
    return answer == DONE ? take_sizes(method(stride, tensor), words, count) : answer;
}

static int scalar_words(PyObject *value, char kind, uint64_t *words, Py_ssize_t *count) {
    if (*count + 2 > MAX_WORDS) return UNUSUAL;
    const int is_float = PyFloat_CheckExact(value), is_int = PyLong_CheckExact(value);
    if (!is_float && !is_int && !PyBool_Check(value)) return UNUSUAL;
    words[(*count)++] = is_float ? 1 : is_int ? 2 : 3;
    if (kind == 'c') return DONE;
    uint64_t *word = &words[(*count)++];
    if (is_float) {
        double number = PyFloat_AS_DOUBLE(value);
        memcpy(word, &number, sizeof number);
        return DONE;
    }
    int overflow;
    *word = (uint64_t)PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow ? UNUSUAL : DONE;
}

// The key of a call as bytes: equal keys, equal plans. addresses: by argument.
static int key_of(Caller *self, PyObject *args, uint64_t *addresses, PyObject **key) {
    uint64_t words[MAX_WORDS];
    Py_ssize_t count = 0;
    if (!PyTuple_CheckExact(args) || PyTuple_GET_SIZE(args) != self->arity) return UNUSUAL;
    for (Py_ssize_t i = 0; i < self->arity; ++i) {
        PyObject *value = PyTuple_GET_ITEM(args, i);
        char kind = self->kinds[i];
        int answer = kind == 'p' || kind == 'v' ? tensor_words(value, kind, &addresses[i], words, &count)
                                                : scalar_words(value, kind, words, &count);
        if (answer != DONE) return answer;
    }
    *key = PyBytes_FromStringAndSize((const char *)words, count * sizeof *words);
    return *key == NULL ? INVALID : DONE;
}

static int count_launch(PyObject *name) {
    PyObject *before = PyDict_GetItemWithError(counts, name);
    if (before == NULL && PyErr_Occurred()) return INVALID;
    PyObject *now = PyLong_FromLongLong(1 + (before == NULL ? 0 : PyLong_AsLongLong(before)));
    int answer = now == NULL || PyDict_SetItem(counts, name, now) ? INVALID : DONE;
    Py_XDECREF(now);
    return answer;
}

static int launch(Caller *self, Bound *bound, PyObject *args, const uint64_t *addresses) {
    for (Py_ssize_t i = 0; i < bound->pair_count; ++i) {
        const Pair *p = &bound->pairs[i];
        if (addresses[p->a] < addresses[p->b] + p->b_bytes && addresses[p->b] < addresses[p->a] + p->a_bytes)
            return UNUSUAL;
    }
    uint64_t slots[MAX_ARGUMENTS], stream = 0, device;
    void *pointers[MAX_ARGUMENTS];
    if (bound->device >= 0) {
        if (take_integer(PyObject_CallNoArgs(current_device), &device) != DONE) return INVALID;
        if ((long)device != bound->device) return UNUSUAL;
        if (take_integer(PyObject_CallOneArg(current_stream, bound->device_number), &stream) != DONE) return INVALID;
    }
    const int has_workspace = bound->workspace != NULL;
    if (self->arity + has_workspace != bound->slot_count) return UNUSUAL;
    for (Py_ssize_t i = 0, slot = 0; i < self->arity; ++i, ++slot) {
        if (has_workspace && slot == bound->workspace_at) ++slot;
        if (bound->slots[slot] == 'P') slots[slot] = addresses[i];
        else {
            int answer = pack(bound->slots[slot], PyTuple_GET_ITEM(args, i), &slots[slot]);
            if (answer != DONE) return answer;
        }
    }
    for (Py_ssize_t i = 0; i < bound->slot_count; ++i) pointers[i] = &slots[i];
    PyObject *scratch = NULL;
    if (has_workspace) {
        scratch = PyObject_CallNoArgs(bound->workspace);
        if (scratch == NULL) return INVALID;
        if (take_integer(method(data_ptr, scratch), &slots[bound->workspace_at]) != DONE) {
            Py_DECREF(scratch);
            return INVALID;
        }
    }
    Config config = bound->config;
    config.stream = (void *)(uintptr_t)stream;
    int status;
    Py_BEGIN_ALLOW_THREADS  // a full queue waits here
    status = bound->start(&config, bound->function, pointers, NULL);
    Py_END_ALLOW_THREADS
    Py_XDECREF(scratch);
    if (status) return UNUSUAL;  // the other path finds the same and has the words for it
    return count_launch(bound->name);
}

static PyObject *answer_of(int answer) {
    if (answer == INVALID) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
        PyErr_Clear();
    }
    return Py_NewRef(answer == DONE ? Py_True : Py_False);
}

static PyObject *caller_launch(Caller *self, PyObject *const *in, Py_ssize_t count) {
    if (count != 2 || !PyDict_CheckExact(in[0])) return answer_of(UNUSUAL);
    uint64_t addresses[MAX_ARGUMENTS];
    PyObject *key = NULL;
    int answer = key_of(self, in[1], addresses, &key);
    if (answer == DONE) {
        PyObject *found = PyDict_GetItemWithError(in[0], key);
        Py_DECREF(key);
        if (found == NULL) answer = PyErr_Occurred() ? INVALID : UNUSUAL;
        else if (!Py_IS_TYPE(found, &BoundType)) answer = UNUSUAL;
        else {
            Py_INCREF(found);
            answer = launch(self, (Bound *)found, in[1], addresses);
            Py_DECREF(found);
        }
    }
    return answer_of(answer);
}

static PyObject *caller_key(Caller *self, PyObject *args) {
    uint64_t addresses[MAX_ARGUMENTS];
    PyObject *key = NULL;
    int answer = key_of(self, args, addresses, &key);
    return answer == DONE ? key : answer == UNUSUAL ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef caller_methods[] = {
    {"launch", (PyCFunction)(void (*)(void))caller_launch, METH_FASTCALL,
     "launch({key: Bound}, args) -> whether the call was launched; if not, nothing has been done."},
    {"key", (PyCFunction)caller_key, METH_O, "key(args) -> the key of a call, None where it has none."},
    {NULL},
};

static PyTypeObject CallerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kforge_call.Caller",
    .tp_basicsize = sizeof(Caller),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Caller(kinds): p a pointer, v one to a view of any layout, k a scalar keyed by value, c one keyed by class.",
    .tp_new = caller_new,
    .tp_methods = caller_methods,
};

static PyObject *setup(PyObject *Py_UNUSED(module), PyObject *args) {
    if (!PyArg_ParseTuple(args, "OOOOOO!", &tensor_class, &parameter_class, &grad_enabled, &current_device,
                          &current_stream, &PyDict_Type, &counts))
        return NULL;
    struct { const char *name; PyObject **place; int is_method; } wanted[] = {
        {"data_ptr", &data_ptr, 1}, {"get_device", &get_device, 1}, {"numel", &numel, 1},
        {"is_contiguous", &is_contiguous, 1}, {"stride", &stride, 1}, {"is_conj", &is_conj, 1}, {"is_neg", &is_neg, 1},
        {"dtype", &dtype, 0}, {"requires_grad", &requires_grad, 0}, {"shape", &shape, 0},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
        *wanted[i].place = PyObject_GetAttrString(tensor_class, wanted[i].name);
        if (*wanted[i].place == NULL) return NULL;
        if (!wanted[i].is_method && Py_TYPE(*wanted[i].place)->tp_descr_get == NULL)
            return PyErr_Format(PyExc_TypeError, "Tensor.%s is no descriptor", wanted[i].name);
    }
    PyObject **taken[] = {&tensor_class, &parameter_class, &grad_enabled, &current_device, &current_stream, &counts};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; ++i) Py_INCREF(*taken[i]);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS, "setup(Tensor, Parameter, is_grad_enabled, get_device, get_stream, counts)"},
    {NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kforge_call", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_kforge_call(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &BoundType) || PyModule_AddType(module, &CallerType)) return NULL;
    return module;
}
