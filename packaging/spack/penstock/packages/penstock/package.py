from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage


class Penstock(CMakePackage):
    """Collectives, redistribution, shared files, input and checkpoints behind computation: the libraries for C++ and C.

    py-penstock is the package for Python.
    """

    license("BSD-3-Clause")

    version("0.1.0")

    variant("png", default=True, description="Decode PNG images")
    variant("webp", default=True, description="Decode WebP images")
    variant("hwloc", default=True, description="Read the topology of the machine by hwloc")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build", when="+hwloc")
    depends_on("mpi")
    depends_on("jpeg")
    depends_on("libpng", when="+png")
    depends_on("libwebp", when="+webp")
    depends_on("xxhash", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("hwloc@2.1:2", when="+hwloc")

    def cmake_args(self):
        return [
            self.define("PENSTOCK_MPI_ROOTS", self.spec["mpi"].prefix),
            self.define("PENSTOCK_TESTS", False),
            self.define_from_variant("PENSTOCK_HWLOC", "hwloc"),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_PNG", self.spec.satisfies("~png")),
        ]
