// Imports between the page's files: no circle of files, none of folders beside each other.
export default {
  forbidden: [
    { name: "no-circle-of-files", severity: "error", from: {}, to: { circular: true } },
    { name: "no-circle-of-folders", severity: "error", scope: "folder", from: {}, to: { circular: true } },
    { name: "no-upward-import", severity: "error", from: { path: "^src/(api|format|components|i18n)/" }, to: { path: "^src/(app|pages)/" } },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "node_modules|\\.test\\.tsx?$|^src/testing/" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
  },
};
