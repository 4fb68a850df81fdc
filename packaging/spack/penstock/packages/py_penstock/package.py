from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPenstock(PythonPackage):
    """Collectives, redistribution, shared files, input and checkpoints behind computation: the package for Python."""

    license("BSD-3-Clause")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-pip", type="build")
    depends_on("py-scikit-build-core@0.10:", type="build")
    depends_on("py-nanobind@2.9.2:", type="build")
    depends_on("py-typing-extensions", type="build", when="^python@:3.10")
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-click@8:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-mpi4py@4.0:", type=("build", "run"))
    depends_on("mpi")
    depends_on("jpeg")
    depends_on("libpng")
    depends_on("libwebp")
    depends_on("xxhash", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("hwloc@2.1:2")

    def setup_build_environment(self, env):
        # Otherwise the build downloads MPIs of its own.
        env.set("PENSTOCK_MPI_ROOTS", self.spec["mpi"].prefix)
