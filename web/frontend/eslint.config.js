import a11y from "eslint-plugin-jsx-a11y";
import hooks from "eslint-plugin-react-hooks";
import typescript from "typescript-eslint";

export default typescript.config(
  { ignores: ["src/api/schema.d.ts", "node_modules", "eslint.config.js"] },
  ...typescript.configs.recommended,
  a11y.flatConfigs.recommended,
  hooks.configs.flat.recommended,
);
